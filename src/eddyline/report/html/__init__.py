"""Renders a run as one self-contained HTML page.

Names no operator. Imports ``report/`` beside it.
"""
