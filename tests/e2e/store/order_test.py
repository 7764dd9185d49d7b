"""Objects in the order of streams that stand: what is sealed, taken and released behind them comes
behind their work, and nobody else waits for it.

order_test.py --build DIR --program FILE [--backend driver] [OrderTest.test_NAME...]
"""
import store_test
from store_test import StoreScenes


class OrderTest(StoreScenes):
    """Programs of order.cc."""

    def test_a_synchronous_upload_is_over(self):
        """One of an engine's length stands in front, and no lane goes between its pieces."""
        proxy = self.proxy(TUBE_SIM_COPIES="engine", TUBE_COPY_LANE="never")
        self.assertEqual(self.run_scene(proxy, "upload"), "equal\n")

    def test_events_of_objects_are_behind_the_legacy_stream(self):
        for scene in ("seal", "release"):
            self.assertEqual(self.run_scene(self.proxy(), scene), "equal\n", scene)


if __name__ == "__main__":
    store_test.main()
