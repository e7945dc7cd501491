"""Renders sections and progress for a terminal or a log. Names no operator."""
