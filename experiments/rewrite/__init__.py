"""Rewriting of whole models by the searches of TASO and Tensat, and what it is worth."""
