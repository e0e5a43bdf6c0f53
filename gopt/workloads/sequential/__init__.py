"""Models for text and audio with recurrence, state spaces or dilated convolutions."""
