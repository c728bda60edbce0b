#!/usr/bin/perl

# Prompts that all share a prefix, under every policy.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 3;
$t->upstream('u', 'kvroute zone=z;', 'B0 B1 B2 B3 max_fails=0');

my @policies = qw(random round_robin least_request kv_cache sticky);

$t->conf("    %%LOG%%\n    kvroute_zone zone=z:8m;\n" . join '', map { <<"EOF" } @policies);
    location /$_/ { kvroute_policy $_; proxy_pass http://u; }
EOF

$t->run();

my $seed = 5001;
my $system = text(300, 5000);

for my $policy (@policies) {
    my $count = $t->tally(map {
        $t->to("/$policy/", chat($system . text(6000, $seed++)))
    } 1 .. 60);
    my ($most) = sort { $b <=> $a } values %$count;

    cmp_ok($most, '<', 30, "all share a prefix: $policy spreads them");
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
