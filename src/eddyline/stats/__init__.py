"""What execution observed, as small values that merge: profiles, their window, cost models."""
