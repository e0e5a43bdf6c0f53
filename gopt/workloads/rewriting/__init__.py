"""Models of the papers on rewriting, as functions of weights and inputs."""
