package kube

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"

	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
)

// camelCase gives the names of our fields as the apiserver's
// AuthenticationConfiguration spells them.
var camelCase = map[string]string{
	"audience_match_policy":  "audienceMatchPolicy",
	"certificate_authority":  "certificateAuthority",
	"claim_mappings":         "claimMappings",
	"claim_validation_rules": "claimValidationRules",
	"discovery_url":          "discoveryURL",
	"egress_selector":        "egressSelectorType",
	"required_value":         "requiredValue",
	"user_validation_rules":  "userValidationRules",
	"value_expression":       "valueExpression",
}

// AuthenticationConfig is the content of an --authentication-config file with
// the jwt of a ProxyKubeApi: the same fields, in the apiserver's spelling.
func AuthenticationConfig(jwt ...v1.JWTAuthenticator) string {
	b, err := json.Marshal(jwt)
	if err != nil {
		panic(fmt.Sprintf("kube: writing an AuthenticationConfiguration: %v", err))
	}
	var list []any
	if err := json.Unmarshal(b, &list); err != nil {
		panic(fmt.Sprintf("kube: writing an AuthenticationConfiguration: %v", err))
	}
	for _, entry := range list {
		issuer := entry.(map[string]any)["issuer"].(map[string]any)
		if issuer["audience_match_policy"] == nil {
			issuer["audience_match_policy"] = "MatchAny" // the CRD's default
		}
	}
	y, err := yaml.Marshal(map[string]any{
		"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
		"jwt": inCamelCase(list),
	})
	if err != nil {
		panic(fmt.Sprintf("kube: writing an AuthenticationConfiguration: %v", err))
	}
	return string(y)
}

// oidcArgs are the flags with which an apiserver did it before there was an
// AuthenticationConfiguration.
func (l layout) oidcArgs(jwt *v1.JWTAuthenticator) ([]string, error) {
	args := []string{"--oidc-issuer-url=" + jwt.Issuer.URL, "--oidc-client-id=" + jwt.Issuer.Audiences[0]}
	if ca := jwt.Issuer.CertificateAuthority; ca != nil {
		file := l.path("oidc.ca")
		if err := os.WriteFile(file, []byte(*ca), 0o600); err != nil {
			return nil, fmt.Errorf("writing the CA of the issuer: %w", err)
		}
		args = append(args, "--oidc-ca-file="+file)
	}
	// An empty user prefix is spelled "-": none at all would be the issuer's URL.
	username, groups := jwt.ClaimMappings.Username, jwt.ClaimMappings.Groups
	return append(args,
		"--oidc-username-claim="+*username.Claim, "--oidc-username-prefix="+cmp.Or(*username.Prefix, "-"),
		"--oidc-groups-claim="+*groups.Claim, "--oidc-groups-prefix="+*groups.Prefix), nil
}

func inCamelCase(value any) any {
	switch value := value.(type) {
	case map[string]any:
		renamed := make(map[string]any, len(value))
		for name, element := range value {
			if camel, ok := camelCase[name]; ok {
				name = camel
			}
			renamed[name] = inCamelCase(element)
		}
		return renamed
	case []any:
		for i := range value {
			value[i] = inCamelCase(value[i])
		}
	}
	return value
}
