// Package strictjson reads JSON objects from outside, and refuses what two
// readers could understand in two ways. It looks at the bytes before
// encoding/json does, because that decoder repairs: it puts U+FFFD where the
// text is not valid UTF-8 and where an escape is half a surrogate pair, and of
// two members with one name it takes the last.
package strictjson
