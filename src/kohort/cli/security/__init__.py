"""The commands that say who may do what: `kohort users`, `kohort acls`, `kohort quotas`."""
