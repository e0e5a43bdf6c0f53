"""Models for recommendation and ranking."""
