"""The learned systems of the literature, one package for each paper."""
