//go:build long

package admission

import (
	"regexp"
	"strings"
	"testing"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/kube"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/integration/harness/realtools"
)

// API-1, API-3: more kinds of change in each place than the short test has
// time for.
func TestLongAPI1EveryPlace(t *testing.T) {
	j := newJudges(t, kube.Options{})
	j.installCRD(t)
	j.everyPlace(t, mutator{thorough: true})
}

// API-1, API-3: the oldest hub. Its verdicts are the same; so are its words, but
// for those of the apiserver itself.
func TestLongAPI1OldestHub(t *testing.T) {
	j := newJudges(t, kube.Options{APIServer: realtools.KubeAPIServer129})
	j.wording = oldWording
	j.everything(t)
}

var (
	// quoted is the value that a refusal quotes. Where a rule refuses, 1.29
	// quotes its type instead.
	quoted = regexp.MustCompile(`Invalid value: ("(?:[^"\\]|\\.)*"|null|-?[0-9.]+|true|false): `)
	// tooLong has another unit.
	tooLong = regexp.MustCompile(`may not be (?:longer|more) than ([0-9]+)(?: bytes)?`)
	// gathered is the fault of 1.29 that the path of a rule begins with the
	// paths of the rules of the same object which refused before.
	gathered = regexp.MustCompile(`(?:(?:user_prefix|group_prefix|auth_config\.(?:validate_against|disable_validation|oidc_provider\.claim_mappings))\.)+` +
		`(user_prefix|group_prefix|auth_config|client_cert)`)
)

// oldWording is what 1.29 and the current version say alike.
func oldWording(text string) string {
	// Said besides the wrong type, by the current version alone.
	if strings.Contains(text, "Checked value must be of type ") {
		return ""
	}
	text = strings.ReplaceAll(text, "map[string]interface {}{}", "{}")
	text = quoted.ReplaceAllString(text, "Invalid value: ")
	text = tooLong.ReplaceAllString(text, "is longer than $1")
	return gathered.ReplaceAllString(text, "$1")
}
