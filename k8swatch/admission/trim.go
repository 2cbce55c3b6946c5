package admission

import (
	"maps"
	"regexp"
	"slices"
	"unicode/utf8"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxBroken is after how many broken bounds the rest of an object's lists is
// not looked at.
const maxBroken = 500

// trimmer shortens the lists of an object that is refused anyway. The OpenAPI
// validator compares the text of each error with all before it: 40,000 wrong
// ports, which fit in 100 KB within every bound of the schema, keep it busy for
// minutes, and a long list of nothing for hours.
type trimmer struct {
	patterns map[string]*regexp.Regexp
	broken   int
	cuts     []tooMany
}

// tooMany is a list that has more items than the schema allows.
type tooMany struct {
	path   *field.Path
	actual int
	max    int64
}

// patternsOf compiles the patterns of a schema.
func patternsOf(s *schema.Structural, into map[string]*regexp.Regexp) {
	if s.ValueValidation != nil && s.ValueValidation.Pattern != "" {
		into[s.ValueValidation.Pattern] = regexp.MustCompile(s.ValueValidation.Pattern)
	}
	for _, property := range s.Properties {
		patternsOf(&property, into)
	}
	if s.Items != nil {
		patternsOf(s.Items, into)
	}
}

// trim shortens lists below value in place: to one item more than the schema
// allows, and behind maxBroken broken bounds. What is left is refused where the
// whole would be.
func (t *trimmer) trim(value any, s *schema.Structural, path *field.Path) any {
	switch value := value.(type) {
	case map[string]any:
		t.count(s.Type == "object")
		for _, name := range required(s) {
			_, found := value[name]
			t.count(found)
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if property, found := s.Properties[name]; found {
				value[name] = t.trim(value[name], &property, path.Child(name))
			}
		}
	case []any:
		t.count(s.Type == "array")
		return t.trimList(value, s, path)
	default:
		t.count(t.holds(value, s))
	}
	return value
}

func (t *trimmer) trimList(list []any, s *schema.Structural, path *field.Path) []any {
	if s.ValueValidation != nil && s.ValueValidation.MaxItems != nil {
		if limit := *s.ValueValidation.MaxItems; int64(len(list)) > limit+1 {
			t.cuts = append(t.cuts, tooMany{path, len(list), limit})
			list = list[:limit+1]
		}
	}
	if s.Items == nil {
		return list
	}
	for i := range list {
		if t.broken > maxBroken {
			return list[:i]
		}
		list[i] = t.trim(list[i], s.Items, path.Index(i))
	}
	return list
}

func (t *trimmer) count(holds bool) {
	if !holds {
		t.broken++
	}
}

func required(s *schema.Structural) []string {
	if s.ValueValidation == nil {
		return nil
	}
	return s.ValueValidation.Required
}

// holds says whether a scalar keeps its bounds.
func (t *trimmer) holds(value any, s *schema.Structural) bool {
	v := s.ValueValidation
	if v == nil {
		v = &schema.ValueValidation{}
	}
	number, isNumber := asNumber(value)
	switch value := value.(type) {
	case nil:
		return s.Nullable
	case bool:
		return s.Type == "boolean"
	case string:
		return s.Type == "string" &&
			(v.MaxLength == nil || int64(utf8.RuneCountInString(value)) <= *v.MaxLength) &&
			(v.Pattern == "" || t.patterns[v.Pattern].MatchString(value)) &&
			(len(v.Enum) == 0 || slices.ContainsFunc(v.Enum, func(allowed schema.JSON) bool { return allowed.Object == value }))
	}
	return isNumber && s.Type == "integer" &&
		(v.Minimum == nil || number >= *v.Minimum) && (v.Maximum == nil || number <= *v.Maximum)
}

func asNumber(value any) (float64, bool) {
	switch value := value.(type) {
	case int64:
		return float64(value), true
	case float64:
		return value, true
	}
	return 0, false
}

// restore puts the real lengths of the lists into the errors, as they were before
// the lists were cut.
func (t *trimmer) restore(errs field.ErrorList) {
	for _, cut := range t.cuts {
		for i, err := range errs {
			if err.Type == field.ErrorTypeTooMany && err.Field == cut.path.String() {
				errs[i] = field.TooMany(cut.path, cut.actual, int(cut.max))
			}
		}
	}
}
