package directory

import (
	"maps"
	"slices"
)

// RefusedFile is a file of the directory that gives nothing as it is now. What it
// gave before stays in force.
type RefusedFile struct {
	// File is the base name, as messages show it.
	File string `json:"file"`
	// Reason is why: the file cannot be read or parsed, or an object in it has no
	// name.
	Reason string `json:"reason"`
}

// RefusedFiles lists the files that are refused, by name. It must not be changed.
func (d *Source) RefusedFiles() []RefusedFile {
	if list := d.refused.Load(); list != nil {
		return *list
	}
	return nil
}

func (d *Source) publishRefused() {
	var list []RefusedFile
	for _, name := range slices.Sorted(maps.Keys(d.files)) {
		file := d.files[name]
		switch {
		case file.problem != "":
			list = append(list, RefusedFile{displayName(name), file.problem})
		case file.content != nil && len(file.content.nameless) > 0:
			list = append(list, RefusedFile{displayName(name), file.content.nameless[0]})
		}
	}
	d.refused.Store(&list)
}
