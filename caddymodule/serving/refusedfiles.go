package serving

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyauthk8s/caddy-proxyauthk8s/internal/text"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch"
	v1 "github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/api/v1"
	"github.com/proxyauthk8s/caddy-proxyauthk8s/k8swatch/source/directory"
)

// RefusedFiles lists the files of the directory that give nothing; nil with a hub.
func (rt *Runtime) RefusedFiles() []directory.RefusedFile {
	if source, ok := rt.source.(*directory.Source); ok {
		return source.RefusedFiles()
	}
	return nil
}

// withRefusedFiles adds to a status that an object is missing which files of the
// directory were refused: the object may be there, in a file that the proxy must not
// read. It returns a copy where it adds something.
func withRefusedFiles(status *v1.ProxyKubeApiStatus, files []directory.RefusedFile) *v1.ProxyKubeApiStatus {
	if len(files) == 0 {
		return status
	}
	for i, c := range status.Conditions {
		if c.Type != k8swatch.ConditionReady || c.Status == metav1.ConditionTrue {
			continue
		}
		switch c.Reason {
		case k8swatch.ReasonClientCertMissing, k8swatch.ReasonReferenceNotFound:
			hint := fmt.Sprintf("; it may be in the file %s of the directory, which %s", files[0].File, files[0].Reason)
			if len(files) > 1 {
				hint += fmt.Sprintf(", or in one of %d more that are refused", len(files)-1)
			}
			told := status.DeepCopy()
			told.Conditions[i].Message = text.OneLine(c.Message+hint, k8swatch.MaxMessage)
			told.Error = &told.Conditions[i].Message
			return told
		}
	}
	return status
}
