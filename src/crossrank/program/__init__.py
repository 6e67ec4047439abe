"""Programs of many ranks: HOST, CHIP and InCore functions over windows and signals."""
