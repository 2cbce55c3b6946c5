package access

import "slices"

// InGroup reports whether required is one of groups, compared byte for byte
// (ACC-1). The groups are those of the proxy identity, without group_prefix.
// An empty required group asks for none.
func InGroup(groups []string, required string) bool {
	return required == "" || slices.Contains(groups, required)
}
