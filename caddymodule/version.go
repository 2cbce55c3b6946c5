package caddymodule

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	goruntime "runtime"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/version"
)

// versions is what the command prints as JSON.
type versions struct {
	Version string `json:"version"`
	Caddy   string `json:"caddy"`
	Go      string `json:"go"`
}

// versionCommand is `caddy proxyauth version`.
func versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version [-o json]",
		Short: "Prints the version of ProxyAuthK8S, and those of Caddy and Go in it",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringP("output", "o", "text", "What to print: text or json")
	cmd.RunE = caddycmd.WrapCommandFuncForCobra(func(flags caddycmd.Flags) (int, error) {
		if err := printVersion(os.Stdout, flags.String("output")); err != nil {
			return caddy.ExitCodeFailedStartup, err
		}
		return caddy.ExitCodeSuccess, nil
	})
	return cmd
}

func printVersion(out io.Writer, format string) error {
	if err := oneOf("text", "json")("output", []string{format}); err != nil {
		return err
	}
	simple, _ := caddy.Version()
	v := versions{Version: version.String(), Caddy: simple, Go: goruntime.Version()}
	if format == "json" {
		return json.NewEncoder(out).Encode(v)
	}
	_, err := fmt.Fprintf(out, "%s (Caddy %s, %s)\n", v.Version, v.Caddy, v.Go)
	return err
}
