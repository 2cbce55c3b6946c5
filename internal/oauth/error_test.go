package oauth

import (
	"strings"
	"testing"
)

func TestErrorCode(t *testing.T) {
	for name, tt := range map[string]struct {
		status  int
		body    string
		want    string
		refuses bool
	}{
		"refused token":      {400, `{"error":"invalid_token","error_description":"x"}`, "invalid_token", true},
		"unreadable token":   {400, `{"error":"invalid_request"}`, "invalid_request", true},
		"refused client":     {400, `{"error":"invalid_client"}`, "invalid_client", false},
		"refused with a 401": {401, `{"error":"invalid_token"}`, "invalid_token", false},
		"success":            {200, `{"error":"invalid_token"}`, "", false},
		"server's trouble":   {503, `{"error":"invalid_token"}`, "", false},
		"prose":              {400, `{"error":"Not Found"}`, "", false},
		"too long":           {400, `{"error":"` + strings.Repeat("a", maxCode+1) + `"}`, "", false},
		"empty":              {400, `{"error":""}`, "", false},
		"not a string":       {400, `{"error":{"code":"invalid_token"}}`, "", false},
		"two errors":         {400, `{"error":"invalid_token","error":"x"}`, "", false},
		"no error":           {400, `{}`, "", false},
		"no object":          {400, `invalid_token`, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ErrorCode(tt.status, []byte(tt.body)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if got := RefusesToken(tt.status, []byte(tt.body)); got != tt.refuses {
				t.Errorf("RefusesToken: %t", got)
			}
		})
	}
}
