"""Models with attention, and the MLP-Mixer."""
