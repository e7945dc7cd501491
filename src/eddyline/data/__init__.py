"""Arrow arrays, outcome codes and sampling: the data that the other rooms work on."""
