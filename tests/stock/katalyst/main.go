// A resource plugin on Katalyst's own stub, as somebody else would write one: it gives every container of its resource
// the CPUs that it was told, and remembers whom. Built and run by test_katalyst_plugin.py.
package main

import (
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/kubewharf/katalyst-core/pkg/agent/orm/endpoint"
	pluginapi "k8s.io/kubelet/pkg/apis/resourceplugin/v1alpha1"
)

type given struct {
	sync.Mutex
	pods map[string]*pluginapi.ContainerResources
}

func allocation(resource string, quantity float64, cpus string) *pluginapi.ResourceAllocation {
	info := &pluginapi.ResourceAllocationInfo{
		OciPropertyName:   "CpusetCpus",
		IsScalarResource:  true,
		AllocatedQuantity: quantity,
		AllocationResult:  cpus,
	}
	return &pluginapi.ResourceAllocation{
		ResourceAllocation: map[string]*pluginapi.ResourceAllocationInfo{resource: info},
	}
}

func main() {
	socket, resource, cpus := os.Args[1], os.Args[2], os.Args[3]
	known := &given{pods: map[string]*pluginapi.ContainerResources{}}
	stub := endpoint.NewResourcePluginStub(socket, resource, false)
	stub.SetAllocFunc(func(r *pluginapi.ResourceRequest) (*pluginapi.ResourceAllocationResponse, error) {
		known.Lock()
		defer known.Unlock()
		result := allocation(r.ResourceName, r.ResourceRequests[r.ResourceName], cpus)
		if known.pods[r.PodUid] == nil {
			known.pods[r.PodUid] = &pluginapi.ContainerResources{
				ContainerResources: map[string]*pluginapi.ResourceAllocation{},
			}
		}
		known.pods[r.PodUid].ContainerResources[r.ContainerName] = result
		return &pluginapi.ResourceAllocationResponse{
			PodUid: r.PodUid, PodNamespace: r.PodNamespace, PodName: r.PodName, ContainerName: r.ContainerName,
			ContainerType: r.ContainerType, ContainerIndex: r.ContainerIndex, PodRole: r.PodRole, PodType: r.PodType,
			ResourceName: r.ResourceName, AllocationResult: result, Labels: r.Labels, Annotations: r.Annotations,
		}, nil
	})
	stub.SetGetAllocFunc(func(*pluginapi.GetResourcesAllocationRequest) (*pluginapi.GetResourcesAllocationResponse, error) {
		known.Lock()
		defer known.Unlock()
		return &pluginapi.GetResourcesAllocationResponse{PodResources: known.pods}, nil
	})
	stub.SetGetTopologyAwareResourcesFunc(
		func(*pluginapi.GetTopologyAwareResourcesRequest) (*pluginapi.GetTopologyAwareResourcesResponse, error) {
			return &pluginapi.GetTopologyAwareResourcesResponse{}, nil
		})
	stub.SetGetTopologyAwareAllocatableResourcesFunc(
		func(*pluginapi.GetTopologyAwareAllocatableResourcesRequest) (*pluginapi.GetTopologyAwareAllocatableResourcesResponse, error) {
			return &pluginapi.GetTopologyAwareAllocatableResourcesResponse{}, nil
		})
	if err := stub.Start(); err != nil {
		log.Fatal(err)
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	<-ended
	if err := stub.Stop(); err != nil {
		log.Fatal(err)
	}
}
