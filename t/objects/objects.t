#!/usr/bin/perl

# Every object of examples/kubernetes, and every rendering of the chart, passes
# a strict server-side dry run at a real kube-apiserver ("make test-objects").
#
# CRDS=FOLDER has definitions that no package registry serves: those of the
# NGINX Ingress Controller and of the NGINX Gateway Fabric.  Objects of a kind
# that is not defined are skipped by name.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../lib";

use Cwd qw(abs_path);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use JSON::PP;
use Test::More;
use Time::HiRes qw(sleep);

my $root = abs_path("$FindBin::Bin/../..");
my $build = $ENV{BUILD} || "$root/build";
my $bin = "$build/objects";
my $dir = tempdir(CLEANUP => 1);
my @pids;

# an API server does not end on TERM if its etcd has ended first

END { local $?; kill 'KILL', @pids; waitpid $_, 0 for @pids }

sub port {
    return IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1')->sockport();
}

sub start {
    my ($name, @args) = @_;

    my $pid = fork() // die "fork: $!";

    if (!$pid) {
        open STDOUT, '>', "$dir/$name.log";
        open STDERR, '>&', \*STDOUT;
        exec @args;
        exit 1;
    }

    push @pids, $pid;
}

sub kubectl {
    my (@args) = @_;

    my $out = `$bin/kubectl --kubeconfig $dir/config @args 2>&1`;
    return ($? == 0, $out);
}

sub write_file {
    my ($name, $text) = @_;

    open my $fh, '>', "$dir/$name" or die "$name: $!";
    print $fh $text;
    close $fh;
}


# --- etcd and the API server

my ($client, $peer, $api) = map { port() } 1 .. 3;

start('etcd', 'etcd', '--data-dir', "$dir/etcd", '--log-level', 'error',
      '--listen-client-urls', "http://127.0.0.1:$client",
      '--advertise-client-urls', "http://127.0.0.1:$client",
      '--listen-peer-urls', "http://127.0.0.1:$peer",
      '--initial-advertise-peer-urls', "http://127.0.0.1:$peer",
      '--initial-cluster', "default=http://127.0.0.1:$peer");

system("openssl genrsa -out $dir/key.pem 2048 2>/dev/null") == 0 or die 'openssl';
write_file('tokens', "token,admin,1,system:masters\n");
write_file('config', <<"EOC");
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://127.0.0.1:$api", insecure-skip-tls-verify: true}}]
users: [{name: u, user: {token: token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
EOC

start('apiserver', "$bin/kube-apiserver", '--etcd-servers', "http://127.0.0.1:$client",
      '--secure-port', $api, '--bind-address', '127.0.0.1', '--cert-dir', "$dir/certs",
      '--service-cluster-ip-range', '10.0.0.0/24', '--token-auth-file', "$dir/tokens",
      '--service-account-issuer', 'https://127.0.0.1', '--authorization-mode', 'RBAC',
      '--service-account-key-file', "$dir/key.pem",
      '--service-account-signing-key-file', "$dir/key.pem");

my $ready = 0;

for (1 .. 600) {
    ($ready) = kubectl('get', '--raw', '/readyz');
    last if $ready || waitpid($pids[1], 1) != 0;
    sleep 0.2;
}

if (!ok($ready, 'the API server is ready')) {
    diag(`tail -5 $dir/etcd.log $dir/apiserver.log`);
    done_testing();
    exit 1;
}

chomp(my $version = `cat $bin/version`);

for my $crds ("$bin/crd", $ENV{CRDS} // ()) {
    my ($ok, $out) = kubectl('apply', '--server-side', '-f', $crds);
    ok($ok, 'definitions: ' . ($crds eq "$bin/crd" ? 'Gateway API, KEDA' : 'CRDS'))
        or diag($out);
}

# namespaces with the strictest rules for pods, which warn at a dry run

for my $name (qw(ml nginx-ingress nginx-gateway)) {
    write_file('namespace.yaml', <<"EOC");
apiVersion: v1
kind: Namespace
metadata:
  name: $name
  labels:
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/warn: restricted
EOC
    kubectl('apply', '-f', "$dir/namespace.yaml");
}

my ($known) = (kubectl('wait', '--for=condition=Established', '--timeout=60s', 'crd', '--all'))[0];
ok($known, 'definitions are known');


# --- objects

my %figures = (objects => 0, passed => 0, skipped => 0);

sub objects {
    my ($title, $file) = @_;

    my @docs = grep { /^kind:/m } split /^---$/m, do {
        open my $fh, '<', $file or die "$file: $!";
        local $/;
        <$fh>;
    };

    for my $doc (@docs) {
        my ($group) = $doc =~ /^apiVersion: (\S+)/m;
        my ($kind) = $doc =~ /^kind: (\S+)/m;
        my ($name) = $doc =~ /^  name: (\S+)/m;

        write_file('object.yaml', $doc);
        $figures{objects}++;

        my ($ok, $out) = kubectl('apply', '--dry-run=server', '--validate=strict',
                                 '-f', "$dir/object.yaml");

      SKIP: {
            if ($out =~ /no matches for kind/ && $group =~ /nginx\.org/) {
                $figures{skipped}++;
                skip("$title: $kind $name: not defined without CRDS=", 1);
            }

            $figures{passed} += ok($ok && $out !~ /^Warning/m, "$title: $kind $name")
                || (diag($out), 0)[1];
        }
    }
}

objects($_ =~ m{([^/]+)$}, $_) for sort glob "$root/examples/kubernetes/*.yaml";

my @values = ([], ['replicas=2', 'autoscaling.enabled=true'],
              ['replicas=2', 'share.enabled=true'],
              ['engines.createService=false', 'networkPolicy.enabled=false',
               'zone.megabytes=1000', 'gracePeriod=100', 'workers=8']);

my $helm = `which helm`;

for my $set (@values) {
    system("$root/t/chart llm ml @$set >$dir/chart.yaml") == 0 or fail("t/chart @$set");
    objects("chart @$set", "$dir/chart.yaml");

    next unless $helm;

    system("helm template llm $root/packaging/chart -n ml "
           . join(' ', map { "--set $_" } @$set) . " >$dir/chart.yaml") == 0
        or fail("helm @$set");
    objects("helm @$set", "$dir/chart.yaml");
}

open my $fh, '>', "$build/objects.json" or die "objects.json: $!";
print $fh JSON::PP->new->canonical->encode({ %figures, version => $version }), "\n";

diag("$figures{passed} of $figures{objects} objects pass, $figures{skipped} skipped");
done_testing();
