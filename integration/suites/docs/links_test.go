package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// pageLink is a link or an image: what stands in its parentheses.
var pageLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// Each link of a page leads to a file of the repository, and to a place in it
// that there is.
func TestLinks(t *testing.T) {
	t.Parallel()
	root := repository(t)
	links := 0
	for _, page := range pages(t) {
		for _, l := range linksOf(t, page) {
			links++
			if problem := follow(root, page, l.to); problem != "" {
				name, _ := filepath.Rel(root, page)
				t.Errorf("%s:%d: %s", name, l.line, problem)
			}
		}
	}
	if links < 50 {
		t.Errorf("%d links", links)
	}
}

// What leads nowhere must not pass.
func TestLinksCanFail(t *testing.T) {
	t.Parallel()
	root := repository(t)
	page := filepath.Join(root, "docs", "reference.md")
	for to, fails := range map[string]bool{
		"https://example.com/x":          false,
		"#id-3":                          false,
		"#a-numbers":                     false,
		"../README.md#two-commands":      false,
		"../caddymodule/identity/doc.go": false,
		"#id-300":                        true,
		"absent.md":                      true,
		"../README.md#three-commands":    true,
		"../../elsewhere.md":             true,
		"http://example.com":             true,
	} {
		if problem := follow(root, page, to); (problem != "") != fails {
			t.Errorf("%s: %q", to, problem)
		}
	}
}

// Each page of docs can be found from the README.
func TestEveryPageIsLinked(t *testing.T) {
	t.Parallel()
	root := repository(t)
	linked := map[string]bool{}
	readme := filepath.Join(root, "README.md")
	for _, l := range linksOf(t, readme) {
		file, _, _ := strings.Cut(l.to, "#")
		linked[filepath.Join(root, filepath.FromSlash(file))] = true
	}
	for _, page := range pages(t) {
		if page != readme && !linked[page] {
			t.Errorf("%s is not linked in README.md", page)
		}
	}
}

type link struct {
	to   string
	line int
}

// linksOf are the links of a page outside of its fenced blocks.
func linksOf(t *testing.T, page string) []link {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var all []link
	fenced := false
	for n, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		for _, m := range pageLink.FindAllStringSubmatch(line, -1) {
			all = append(all, link{m[1], n + 1})
		}
	}
	return all
}

// follow says what is wrong with a link, if anything. What is elsewhere is not
// asked for.
func follow(root, page, to string) (problem string) {
	if strings.HasPrefix(to, "https://") {
		return ""
	}
	file, anchor, _ := strings.Cut(to, "#")
	target := page
	if file != "" {
		target = filepath.Join(filepath.Dir(page), filepath.FromSlash(file))
	}
	if inside, err := filepath.Rel(root, target); err != nil || !filepath.IsLocal(inside) {
		return to + " leads out of the repository"
	}
	if _, err := os.Stat(target); err != nil {
		return to + ": " + err.Error()
	}
	if anchor == "" {
		return ""
	}
	text, err := os.ReadFile(target)
	if err != nil {
		return to + ": " + err.Error()
	}
	if !anchors(string(text))[anchor] {
		return to + ": the page has no such place"
	}
	return ""
}

var (
	madeAnchor = regexp.MustCompile(`<a id="([^"]+)">`)
	// notInAnchor is what GitHub leaves out of the anchor of a heading.
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}\-_ ]`)
)

// anchors are the places of a page: its headings as GitHub names them, and
// what it names itself.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	fenced := false
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "```") {
			fenced = !fenced
		}
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") && !fenced {
			name := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), ""), " ", "-")
			unique := name
			for i := 1; found[unique]; i++ {
				unique = name + "-" + strconv.Itoa(i)
			}
			found[unique] = true
		}
	}
	for _, m := range madeAnchor.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	return found
}
