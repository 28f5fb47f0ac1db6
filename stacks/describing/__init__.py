"""What the models say about themselves: JSON schemas for editors, and the reference of all settings."""
