// An NRI plugin that does nothing, on NRI's own stub: what asking a plugin costs at least. Built by bench/nri.py.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

type nothing struct{}

func (nothing) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, nil
}

func main() {
	plugin, err := stub.New(nothing{}, stub.WithPluginName("nothing"), stub.WithPluginIdx("10"), stub.WithSocketPath(os.Args[1]))
	if err == nil {
		err = plugin.Run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
