package caddymodule

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/caddymodule/serving"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/directory"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "proxyauth",
		Usage: "<command>",
		Short: "Looks after a running ProxyAuthK8S",
		Long:  "Commands for the Kubernetes apiservers behind this proxy.",
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(statusCommand(), versionCommand())
		},
	})
}

// maxAdminAnswer bounds what is read from the admin API, in bytes.
const maxAdminAnswer = 64 << 20

func statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [--address <interface>] [--config <path> [--adapter <name>]] [-o json]",
		Short: "Prints the clusters of a running proxy and their status",
		Args:  cobra.NoArgs,
	}
	cmd.Flags().StringP("address", "", "", "Address of the admin API, if it is not the default or in the configuration")
	cmd.Flags().StringP("config", "c", "", "Configuration file that names the address of the admin API")
	cmd.Flags().StringP("adapter", "a", "", "Adapter of the configuration file")
	cmd.Flags().StringP("output", "o", "table", "What to print: table or json")
	cmd.RunE = caddycmd.WrapCommandFuncForCobra(func(flags caddycmd.Flags) (int, error) {
		if err := runStatus(flags, os.Stdout); err != nil {
			return caddy.ExitCodeFailedStartup, err
		}
		return caddy.ExitCodeSuccess, nil
	})
	return cmd
}

func runStatus(flags caddycmd.Flags, out io.Writer) error {
	format := flags.String("output")
	if err := oneOf("table", "json")("output", []string{format}); err != nil {
		return err
	}
	address, err := caddycmd.DetermineAdminAPIAddress(flags.String("address"), nil, flags.String("config"), flags.String("adapter"))
	if err != nil {
		return fmt.Errorf("finding the admin API: %w", err)
	}
	body, err := askAdmin(address, adminPath)
	if err != nil {
		return err
	}
	if format == "json" {
		_, err := out.Write(body)
		return err
	}
	var list []serving.ClusterStatus
	if err := json.Unmarshal(body, &list); err != nil {
		return fmt.Errorf("decoding the answer of the admin API: %w", err)
	}
	if err := printTable(out, list); err != nil {
		return err
	}
	if body, err = askAdmin(address, adminFilesPath); err != nil {
		return err
	}
	var refused []directory.RefusedFile
	if err := json.Unmarshal(body, &refused); err != nil {
		return fmt.Errorf("decoding the answer of the admin API: %w", err)
	}
	return printRefused(out, refused)
}

func askAdmin(address, path string) ([]byte, error) {
	resp, err := caddycmd.AdminAPIRequest(address, http.MethodGet, path, nil, nil)
	if err != nil {
		return nil, adminError(address, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of the admin API: %w", err)
	}
	return body, nil
}

// printRefused prints the files of the directory that are refused, if any.
func printRefused(out io.Writer, files []directory.RefusedFile) error {
	if len(files) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "\nREFUSED FILE\tREASON")
	for _, f := range files {
		fmt.Fprintln(w, text.Mask(f.File)+"\t"+text.Mask(text.Cut(f.Reason, maxNotice)))
	}
	return w.Flush()
}

// adminError adds to a connection that failed where else the admin endpoint may
// be. Caddy's function keeps no chain of errors, but says what it was doing.
func adminError(address string, err error) error {
	if !strings.HasPrefix(err.Error(), "performing request: ") {
		return err
	}
	return fmt.Errorf("asking the admin API at %s: %w; is Caddy running? The global option `admin` may have moved the endpoint, to a unix socket for instance, "+
		"or turned it off: name it with --address (unix//run/caddy/admin.sock) or --config", address, err)
}

// printTable prints the columns of `kubectl get proxykubeapis -o wide`, the group
// that a caller must have, and for each cluster a message: why it is not ready, or its notices. Control characters
// are masked: the author of an object must not steer the admin's terminal.
func printTable(out io.Writer, list []serving.ClusterStatus) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "NAMESPACE\tNAME\tREADY\tREASON\tUPSTREAM\tTRUST\tGROUP\tPATH\tMESSAGE")
	for _, c := range list {
		ready, reason := "Unknown", ""
		if condition := meta.FindStatusCondition(c.Status.Conditions, k8swatch.ConditionReady); condition != nil {
			ready, reason = string(condition.Status), condition.Reason
		}
		var mode, trust string
		if u := c.Status.UpstreamAuth; u != nil {
			mode, trust = u.Mode, string(u.Trust)
		}
		cells := []string{c.Namespace, c.Name, ready, reason, mode, trust, c.ProxyGroup, ptr.Deref(c.Status.Path, ""), tableMessage(c.Status.Conditions)}
		for i, cell := range cells {
			cells[i] = cmp.Or(text.Mask(cell), "-")
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// maxNotice is how much of a notice the table shows, in characters; -o json has
// the whole text.
const maxNotice = 256

// tableMessage is the reason why a cluster is not ready, or else its notices.
func tableMessage(conditions []metav1.Condition) string {
	var notices []string
	for _, c := range conditions {
		notice := text.Cut(c.Message, maxNotice)
		switch {
		case c.Type == k8swatch.ConditionReady && c.Status != metav1.ConditionTrue:
			return c.Message
		case c.Type == k8swatch.ConditionReady || c.Type == k8swatch.ConditionReachable || c.Status != metav1.ConditionTrue:
		default:
			notices = append(notices, c.Type+": "+notice)
		}
	}
	return strings.Join(notices, "; ")
}
