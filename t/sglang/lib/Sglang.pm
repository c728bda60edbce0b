package Sglang;

# Tests with real SGLang, with the methods of Vllm.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../vllm/lib";
use Vllm;

our @ISA = qw(Vllm);
our @EXPORT = @Vllm::EXPORT;

sub program { return 't/sglang/sglang.py'; }
sub prefix { return 'sglang'; }


# SGLang refuses while it has requests

sub forget {
    my ($t, @ports) = @_;

    for my $port (@ports ? @ports : @{$t->{fleet}}) {
        Kvroute::wait_for(sub {
            $t->post('/flush_cache', '', port => $port)->{status} == 200;
        });
    }
}


1;
