"""Models of streams: plan, and work of a bucket per batch.

The rows of a batch and the state before it come in. Results, the state after it and a report go
out. Invariant: all batches together give what one batch of all rows would give.

Read ``plan`` (the query, its stages, saved state and reports), ``bucket`` (the work of a batch, and
early results), ``view`` (what people see of it). Imports all other floors but ``sql/``.
"""
