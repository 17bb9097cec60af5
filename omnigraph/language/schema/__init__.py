"""The schema language (`.pg`): text to tree and back."""
