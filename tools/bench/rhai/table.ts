/**
 * The scripts of the benchmark, what each must come to, and what the original (1.26.0, a release build)
 * took for it on the machine of reference. All of them are our own; those that stand for a script of the
 * original's repository do the same work.
 */
export interface Entry {
  readonly name: string;
  /** The file in scripts/, without its extension. */
  readonly file: string;
  /** Its value, as debug shows it: a faster wrong answer is no answer. */
  readonly value: string;
  readonly referenceMs: number;
}

function entry(name: string, file: string, value: string, referenceMs: number): Entry {
  return { name, file, value, referenceMs };
}

export const TABLE: readonly Entry[] = [
  entry('fib(20)', 'fib-20', '6765', 8.4),
  entry('fib(27)', 'fib-27', '196418', 242),
  entry('fib(28)', 'fib-28', '317811', 419),
  entry('fib(30)', 'fib-30', '832040', 1272),
  entry('while 1M decrement', 'while-decrement', '0', 136),
  entry('for 0..1M sum', 'for-sum', '499999500000', 80),
  entry('float loop 1M', 'float-loop', 'true', 135),
  entry('sieve 100k', 'sieve', '9592', 60),
  entry('map 100k insert+read', 'map-insert-read', '4999950000', 357),
  entry('string append 100k', 'string-append', '100000', 19),
  entry('closure call 200k', 'closure-call', '200000', 76),
  entry('method call 200k', 'method-call', '400000', 64),
  entry('map/filter/reduce 100k', 'map-filter-reduce', '3333366666', 98),
  entry('sort 100k', 'sort', 'true', 52),
  entry('switch 1M', 'switch', '3000000', 206),
  entry('speed_test', 'speed-test', '0', 158),
  entry('primes(1M)', 'primes', '78498', 759),
  entry('fibonacci (28×5)', 'fibonacci', '317811', 2561),
  entry('mat_mul', 'mat-mul', '2500', 69),
  entry('strings_map', 'strings-map', '[8673959616, 0]', 644),
];
