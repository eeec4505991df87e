//go:build tools

// What Helm is made of, as this module's requirement.
package helm

import _ "helm.sh/helm/v3/cmd/helm"
