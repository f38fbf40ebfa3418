/** The scripts of the workloads: jobs that do nothing, in the shapes that are measured. */

export const ONE_JOB = 'join(sal("noop.run", #{}))';

export const manyJobs = (count: number): string => `let jobs = [];
for i in 0..${count} { jobs.push(sal("noop.run", #{})); }
join_all(jobs).len()`;

/** One job, a hundred after it, one after them. */
export const FAN = `let first = sal("noop.run", #{});
let middle = [];
for i in 0..100 { middle.push(sal("noop.run", #{}, #{ after: [first] })); }
join(sal("noop.run", #{}, #{ after: middle }))`;

export const THREE_STEPS = `for step in 0..3 { join(sal("noop.run", #{})); }`;
