"""How many candidates a second gopt costs, beside a compiled decoder and other libraries."""
