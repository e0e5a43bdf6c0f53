"""The process around a computation: files, progress, optional packages."""
