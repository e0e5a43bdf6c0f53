"""REGAL against searches, heuristics and solvers, on model families that it was not trained on."""
