package Foreign;

# Tests with llama-cpp-python's server, with the methods of Vllm.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../vllm/lib";
use Vllm;

our @ISA = qw(Vllm);
our @EXPORT = @Vllm::EXPORT;

sub program { return 't/foreign/foreign.py'; }
sub forget { }


1;
