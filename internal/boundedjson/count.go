package boundedjson

// What a JSON text that becomes maps may hold. Each member of a map costs some
// hundred bytes, however short it is written.
const (
	maxMembers       = 1_000  // of one object
	maxNestedMembers = 10_000 // of all objects of a text together
	// maxElements is for arrays where no long one is expected.
	maxElements = 10_000
)

// Counts are the numbers of values in a JSON text.
type Counts struct {
	// Widest is the most members that one object has, Members the number of
	// members of all objects.
	Widest, Members int
	// Separators are the commas between elements of arrays: one less than
	// elements in each array that is not empty.
	Separators int
}

// Count counts the values of a text that is valid JSON, and decodes none.
func Count(text []byte) (c Counts) {
	const array = -1
	var open []int // for each value around: the members of an object, or array
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = skipString(text, i) - 1
		case '{':
			open = append(open, 0)
		case '[':
			open = append(open, array)
		case '}', ']':
			open = open[:len(open)-1]
		case ':':
			innermost := &open[len(open)-1]
			*innermost++
			c.Widest = max(c.Widest, *innermost)
			c.Members++
		case ',':
			if open[len(open)-1] == array {
				c.Separators++
			}
		}
	}
	return c
}

// TooManyMembers reports whether there are too many members to make maps of:
// over 1,000 in one object, or over 10,000 in all.
func (c Counts) TooManyMembers() bool {
	return c.Widest > maxMembers || c.Members > maxNestedMembers
}

// TooManyElements reports whether the arrays hold over 10,000 elements.
func (c Counts) TooManyElements() bool { return c.Separators > maxElements }
