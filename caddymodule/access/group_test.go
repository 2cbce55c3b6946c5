package access

import "testing"

// ACC-1.
func TestInGroup(t *testing.T) {
	tests := []struct {
		name     string
		groups   []string
		required string
		want     bool
	}{
		{"none required", nil, "", true},
		{"member", []string{"dev", "ops"}, "ops", true},
		{"not a member", []string{"dev"}, "ops", false},
		{"no groups", nil, "ops", false},
		{"another case", []string{"Ops"}, "ops", false},
		{"a longer name", []string{"ops-team"}, "ops", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := InGroup(tt.groups, tt.required); got != tt.want {
				t.Errorf("InGroup = %t", got)
			}
		})
	}
}
