"""Rewrite whole models by the searches of TASO and Tensat, and measure the gains."""
