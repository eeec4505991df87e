module kubeqos.io/tests/katalyst

go 1.18

require (
	github.com/kubewharf/katalyst-core v0.5.47
	k8s.io/kubelet v0.24.6
)

require (
	github.com/go-logr/logr v1.2.3 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/protobuf v1.5.3 // indirect
	golang.org/x/net v0.17.0 // indirect
	golang.org/x/sys v0.29.0 // indirect
	golang.org/x/text v0.13.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20230731190214-cbb8c96f2d6d // indirect
	google.golang.org/grpc v1.57.1 // indirect
	google.golang.org/protobuf v1.31.0 // indirect
	k8s.io/apimachinery v0.26.1 // indirect
	k8s.io/klog/v2 v2.80.1 // indirect
)

// Katalyst compiles against its own fork of the kubelet's protocols.
replace (
	k8s.io/apimachinery => k8s.io/apimachinery v0.24.6
	k8s.io/kubelet => github.com/kubewharf/kubelet v1.24.6-kubewharf-pre.2
)
