// Package strictjson reads JSON objects from outside and refuses what two
// readers could understand in two ways. It looks at the bytes before
// encoding/json does, because that decoder repairs them: it writes U+FFFD for
// text that is not valid UTF-8 and for half of a surrogate pair, and takes the
// last of two members with one name.
package strictjson
