"""What pages take as given: a module by the name of each page that needs one, loaded before it."""
