"""Another MIG layout for a node: emptied, changed, checked and given back, without ending a job."""
