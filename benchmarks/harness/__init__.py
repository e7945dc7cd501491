"""What every suite stands on: scenarios, results, times, the machine."""
