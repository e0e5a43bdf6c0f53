"""REGAL, compared with searches, heuristics and solvers on model families not trained on."""
