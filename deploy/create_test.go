package deploy

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func create(ctx context.Context, c kubernetes.Interface, object any, o metav1.CreateOptions) (err error) {
	switch x := object.(type) {
	case *corev1.Namespace:
		_, err = c.CoreV1().Namespaces().Create(ctx, x, o)
	case *corev1.ConfigMap:
		_, err = c.CoreV1().ConfigMaps(x.Namespace).Create(ctx, x, o)
	case *corev1.Service:
		_, err = c.CoreV1().Services(x.Namespace).Create(ctx, x, o)
	case *appsv1.StatefulSet:
		_, err = c.AppsV1().StatefulSets(x.Namespace).Create(ctx, x, o)
	case *policyv1.PodDisruptionBudget:
		_, err = c.PolicyV1().PodDisruptionBudgets(x.Namespace).Create(ctx, x, o)
	case *networkingv1.NetworkPolicy:
		_, err = c.NetworkingV1().NetworkPolicies(x.Namespace).Create(ctx, x, o)
	case *corev1.ServiceAccount:
		_, err = c.CoreV1().ServiceAccounts(x.Namespace).Create(ctx, x, o)
	case *appsv1.DaemonSet:
		_, err = c.AppsV1().DaemonSets(x.Namespace).Create(ctx, x, o)
	case *appsv1.Deployment:
		_, err = c.AppsV1().Deployments(x.Namespace).Create(ctx, x, o)
	case *rbacv1.Role:
		_, err = c.RbacV1().Roles(x.Namespace).Create(ctx, x, o)
	case *rbacv1.RoleBinding:
		_, err = c.RbacV1().RoleBindings(x.Namespace).Create(ctx, x, o)
	case *rbacv1.ClusterRole:
		_, err = c.RbacV1().ClusterRoles().Create(ctx, x, o)
	case *rbacv1.ClusterRoleBinding:
		_, err = c.RbacV1().ClusterRoleBindings().Create(ctx, x, o)
	case *admissionv1.ValidatingAdmissionPolicy:
		_, err = c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(ctx, x, o)
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		_, err = c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx, x, o)
	default:
		err = fmt.Errorf("%T is not created here", object)
	}

	return err
}
