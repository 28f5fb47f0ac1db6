"""Policy rules over plain manifests. Empty until the policy milestone."""
