package idp

// What a JSON text that becomes maps may hold. Each member of a map costs some
// hundred bytes, whatever it is written with.
const (
	maxMembers       = 1_000  // of one object
	maxNestedMembers = 10_000 // of all objects of a text together
	// maxElements is for arrays where no long one is expected.
	maxElements = 10_000
)

// The faults of an answer whose Extent is too large.
const (
	TooManyMembers  Fault = "its answer has too many members"
	TooManyElements Fault = "its answer has too many elements"
)

// Extent is how many values a JSON text holds. It is found without reading any
// of them.
type Extent struct {
	// Widest is the most members that one object has, Members those of all
	// objects.
	Widest, Members int
	// Separators are those between the elements of arrays, of which there are
	// that many more than arrays, but for empty ones.
	Separators int
}

// Measure measures a text that is valid JSON.
func Measure(text []byte) (e Extent) {
	const array = -1
	var open []int // members of the objects around, or array
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '{':
			open = append(open, 0)
		case '[':
			open = append(open, array)
		case '}', ']':
			open = open[:len(open)-1]
		case ':':
			innermost := &open[len(open)-1]
			*innermost++
			e.Widest = max(e.Widest, *innermost)
			e.Members++
		case ',':
			if open[len(open)-1] == array {
				e.Separators++
			}
		}
	}
	return e
}

// TooManyMembers reports whether there are too many members to make maps of:
// over 1,000 in one object, or 10,000 in all.
func (e Extent) TooManyMembers() bool {
	return e.Widest > maxMembers || e.Members > maxNestedMembers
}

// TooManyElements reports whether the arrays hold over 10,000 elements.
func (e Extent) TooManyElements() bool { return e.Separators > maxElements }
