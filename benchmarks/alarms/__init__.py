"""Suite ``alarms``: many conditions over the same models, estimated, shared and re-planned."""
