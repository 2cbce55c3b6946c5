package access

import "slices"

// InGroup reports whether the required group is among the groups of an identity,
// which come without group_prefix and are compared byte for byte. An empty
// required group allows every identity (ACC-1).
func InGroup(groups []string, required string) bool {
	return required == "" || slices.Contains(groups, required)
}
