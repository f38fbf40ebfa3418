/** The service process of the Restate peer: a handler of three durable steps that do nothing. */
import { peerPackage } from './packages.ts';

type Context = { run<T>(name: string, step: () => Promise<T>): Promise<T> };
type Sdk = {
  service(definition: object): object;
  serve(options: { services: object[]; port: number }): Promise<number>;
};

const restate = await peerPackage<Sdk>('@restatedev/restate-sdk');
const steps = restate.service({
  name: 'steps',
  handlers: {
    three: async (context: Context) => {
      for (const name of ['one', 'two', 'three']) await context.run(name, async () => null);
      return null;
    },
  },
});
process.on('disconnect', () => process.exit(0));
process.on('SIGTERM', () => process.exit(0));
await restate.serve({ services: [steps], port: Number(process.argv[2]) });
process.send?.({ ready: true });
